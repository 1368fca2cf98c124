# The plot of model.md, from the data that `simulate.py scale` writes: gnuplot -e "folder='build/model'" scale.gnuplot
set terminal svg size 1200,760 font "sans-serif,12" background rgb "white"
set output folder."/scale.svg"
data = folder."/scale.dat"
set logscale xy
set xrange [8:4096]
set yrange [0.02:20000]
set xtics (8, 16, 32, 64, 128, 256, 512, "1k" 1024, "2k" 2048, "4k" 4096)
set format y "10^{%T}"
set grid
set key left top samplen 2 spacing 0.9
set multiplot layout 2,3 title "Predicted time of one synchronous step, in seconds"
networks = "10 25 100"
ps = "1 4 16 64 256 512"
do for [m=1:2] {
    do for [n=1:3] {
        set title sprintf("%s, %s Gbit/s", m == 1 ? "100 MB" : "1 GB", word(networks, n))
        set xlabel m == 2 ? "workers" : ""
        set ylabel n == 1 ? "seconds" : ""
        first = ((m - 1) * 3 + n - 1) * 6
        plot for [p=1:6] data index first + p - 1 using 1:2 with linespoints pt 7 ps 0.4 lw 1.5 title word(ps, p)." ps"
    }
}
unset multiplot
